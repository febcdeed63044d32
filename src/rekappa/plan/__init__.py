"""Pure planning: splits in, a frozen plan out. No Spark, no Iceberg, no Kafka."""
