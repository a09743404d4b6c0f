"""What a trained model knows: how well it predicts a text, and what it looks at while it does."""
