"""What is known of models."""
