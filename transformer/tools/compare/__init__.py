"""Tests and tables that hold results against each other."""
