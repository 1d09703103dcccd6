# Reads the output of `go test -v` twice (the file is given twice) and prints what each test that failed or hung said, a
# package that did not build, and what belongs to no test: a panic, a data race, what TestMain printed.
NR == FNR {
	if ($1 == "---" && $2 == "FAIL:") failed[$3]
	if (/^\trunning tests:$/) running = 1 # when the time of the whole was over
	if (running && /^\t\t/) failed[$1]
	if (/^$/) running = 0
	if (/^-test.shuffle /) order = FNR
	if (/^FAIL\t/) seed[order]
	next
}
/^=== PAUSE / { name = ""; next }
/^=== (RUN|CONT|NAME) / { name = $3; if (name in failed) print; next }
/^(PASS|FAIL)$|^panic: |^fatal error: / { name = "" }
/^==================$/ { race = !race; print; next } # the line above and below a data race
/^-test.shuffle / { if (FNR in seed) print; next } # what gives a package that failed the same order again
/^PASS$/ { next }
/^(ok|\?|go: downloading)[ \t]|^ *--- (PASS|SKIP): / { next }
race || name == "" || name in failed || /^ *--- FAIL: /
