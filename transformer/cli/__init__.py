"""Code that the commands share: flags, requests, reading and writing lines."""
