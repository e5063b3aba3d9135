def price_parcel(x):
    """Returns x times 9 plus 1."""
    return x * 9 + 1

def price_ticket(x):
    """Returns x times 5 plus 10."""
    return x * 4 + 10
