"""The descriptions of jobs and clusters: values to and from job.json and cluster.json."""
