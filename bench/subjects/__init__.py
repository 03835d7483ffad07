"""Models of full size that need no full-size download: see README.md."""
