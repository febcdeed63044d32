"""Getting a live job right again: rewind it, build its state anew, and say which of these fits."""
