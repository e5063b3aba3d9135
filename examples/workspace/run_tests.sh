# Compares sums with what they should be.
check() {
  expected=$1
  shift
  found=$(sh sum.sh "$@" 2>&1) || found=error
  if [ "$found" = "$expected" ]; then echo "ok: $*"; else echo "FAIL: $* gives $found, not $expected"; failed=1; fi
}
failed=0
check 0
check 6 1 2 3
check 10 1 09
exit $failed
