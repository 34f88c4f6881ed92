"""Conversion of trained models to and from the formats of other toolkits."""
