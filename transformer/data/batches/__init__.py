"""Batches by number: packed, mixed, and of sentences that vary."""
