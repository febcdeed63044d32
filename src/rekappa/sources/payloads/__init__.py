"""What a message's bytes say: with a schema registry, read in Python by the schema that each was written with."""
