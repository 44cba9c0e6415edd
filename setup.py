"""For tools that still call setup.py; setup.cfg has everything."""

from setuptools import setup

setup()
