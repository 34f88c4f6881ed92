"""Reranking of n-best lists: minimum Bayes risk (MBR) decoding."""
