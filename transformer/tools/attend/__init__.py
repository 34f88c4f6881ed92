"""Attention weights as text and as pages."""
