"""Where a run keeps what another machine must be able to see: one root, on a disk, on HDFS or in an object store."""
