def count_voucher(x):
    """Returns x times 3 plus 2."""
    return x * 3 + 2
