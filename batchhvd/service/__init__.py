"""The local service: Resource Manager, Batch AI 2018-05-01 and Azure Files over loopback, with jobs that really run."""
