"""What people write in files: quantities, kinds of values, and errors that name file and line."""
