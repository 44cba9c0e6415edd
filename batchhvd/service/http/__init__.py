"""Requests and answers of the service."""
