"""Azure blob containers over REST, on plain directories: a container is a directory, a blob a file."""
