"""Audits a corpus: findings, report and table."""
