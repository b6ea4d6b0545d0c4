"""What others published becomes rows, each in a transaction of its own."""
