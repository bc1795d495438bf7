"""One cause a file: evidence in, verdict out."""
