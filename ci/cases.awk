# What became of the tests of a JUnit report that CTest wrote, a line each, tabs between:
#
#     passed NAME
#     failed NAME
#     skipped NAME CASE REASON
#
# A case is one of cmocka's inside a program, or "-" if CTest skipped the whole test; a program of
# which every case was skipped has not passed.  CTest calls a test "notrun" both when it asked to be
# skipped and when its program is missing; the latter is a failure.

function settle() {
    if (name == "")
        return
    if (status == "notrun" && told || status == "disabled")
        print "skipped\t" name "\t-\t" (status == "disabled" ? "disabled" : reason)
    else if (status != "run")
        print "failed\t" name
    else if (!nothing || !skips)
        print "passed\t" name
    for (at = 1; at <= skips; at++)
        print "skipped\t" name "\t" skip[at]
    name = reason = current = ""
    told = nothing = skips = 0
    delete seen
}

# The value of an attribute of this line.
function attribute(key, from) {
    from = index($0, " " key "=\"") + length(key) + 3
    return plain(substr($0, from, index(substr($0, from), "\"") - 1))
}

function plain(text) {
    gsub(/&apos;/, "'", text)
    gsub(/&quot;/, "\"", text)
    gsub(/&lt;/, "<", text)
    gsub(/&gt;/, ">", text)
    gsub(/&amp;/, "\\&", text)
    return text
}

/^[ \t]*<testcase / {
    settle()
    name = attribute("name")
    status = attribute("status")
}
/^[ \t]*<skipped message="SKIP_/ { told = 1 }
{ sub(/^[ \t]*<system-out>/, "") }
/^\[ RUN      \] / { current = substr($0, 14); reason = "" }
/^skipped: / { reason = plain(substr($0, 10)) }
/^\[  PASSED  \] 0 test/ { nothing = 1 }
# The summary names skipped cases again; ranks each say it.
/^\[  SKIPPED \] / && $0 == "[  SKIPPED ] " current && !(current in seen) {
    seen[current] = 1
    skip[++skips] = plain(current) "\t" reason
}
END { settle() }
