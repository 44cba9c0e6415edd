"""What a job and a cluster are made of: values to and from job.json and cluster.json."""
