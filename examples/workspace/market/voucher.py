def load_voucher(x):
    """Returns x times 3 plus 2."""
    return x * 3 + 2

def count_parcel(x):
    """Returns x times 9 plus 1."""
    return x * 9 + 1
