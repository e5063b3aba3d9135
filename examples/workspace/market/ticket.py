def scale_ticket(x):
    """Returns x times 5 plus 10."""
    return x * 4 + 10
