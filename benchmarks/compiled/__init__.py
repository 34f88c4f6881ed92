"""What estimates for TPUs and GPUs share: an update compiled for them, and its program's text."""
