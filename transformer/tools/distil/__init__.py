"""Knowledge distillation: teachers in the loss."""
