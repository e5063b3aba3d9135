# Checks every function against the sentence that describes it: "Returns x times A plus B."
PYTHONDONTWRITEBYTECODE=1 exec python3 - <<'END'
import glob, re, runpy
passed, failures = 0, []
for path in sorted(glob.glob("*/*.py")):
    for name, function in runpy.run_path(path).items():
        promise = re.fullmatch(r"Returns x times (\d+) plus (\d+)\.", getattr(function, "__doc__", None) or "")
        if not callable(function) or not promise:
            continue
        expected, got = 6 * int(promise[1]) + int(promise[2]), function(6)
        if got == expected:
            passed += 1
        else:
            test = "tests/test_" + path.rsplit("/", 1)[1]
            failures.append((name, f"FAIL {test}: {name}(6): expected {expected}, got {got}"))
for name, text in sorted(failures):
    print(text)
print(f"{passed} passed, {len(failures)} failed")
raise SystemExit(len(failures) > 0)
END
