"""The Java side: which Java, which jars."""
