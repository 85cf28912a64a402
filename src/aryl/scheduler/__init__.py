"""The loop that every use of Aryl goes through, what it needs from the world, and the journal it keeps."""
