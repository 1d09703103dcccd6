package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// A version is a release of etcd.
type version struct{ major, minor, patch int }

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch) }

// readVersion reads MAJOR.MINOR.PATCH, whatever follows it.
func readVersion(s string) (version, bool) {
	core, _, _ := strings.Cut(strings.TrimPrefix(s, "v"), "-")
	core, _, _ = strings.Cut(core, "+")
	parts := strings.Split(core, ".")
	if len(parts) != 3 {
		return version{}, false
	}
	var n [3]int
	for i, p := range parts {
		var err error
		if n[i], err = strconv.Atoi(p); err != nil || n[i] < 0 {
			return version{}, false
		}
	}
	return version{n[0], n[1], n[2]}, true
}

// A defect is a fault of etcd that was mended.
type defect struct {
	// mended are the first releases without it, one of each minor that got one. Later minors never had it, earlier ones keep it.
	mended []version
	level  Level
	what   string
	// onlyWithUsers: it matters where etcd has users.
	onlyWithUsers bool
}

var defects = []defect{
	{mended: []version{{3, 4, 31}, {3, 5, 13}}, level: Problem, what: "a leader that stalls can revoke the leases of others after it was replaced, so that held agents are taken"},
	{mended: []version{{3, 4, 42}, {3, 5, 28}, {3, 6, 9}}, level: Warning, what: "a linearizable read may be stale: status and fence can tell of an earlier state; begin cannot be fooled"},
	{mended: []version{{3, 5, 33}, {3, 6, 14}, {3, 7, 1}}, level: Warning, what: "rights of users can be got around", onlyWithUsers: true},
}

// has reports whether a release has the defect.
func (d defect) has(v version) bool {
	newest := d.mended[len(d.mended)-1]
	if v.major != newest.major {
		return v.major < newest.major
	}
	for _, m := range d.mended {
		if m.minor == v.minor {
			return v.patch < m.patch
		}
	}
	return v.minor < newest.minor
}

// next is the release to go to: the one of the same minor, else the lowest.
func (d defect) next(v version) version {
	for _, m := range d.mended {
		if m.minor >= v.minor {
			return m
		}
	}
	return d.mended[len(d.mended)-1]
}

// Every minor from lowest to highest is tested.
const lowestMinor, highestMinor = 4, 7

// versions judges the releases of the members.
func (v *visit) versions(all map[string]string) {
	users := v.cfg.User != "" || v.cfg.Cert != ""
	var releases []string
	for _, endpoint := range sortedKeys(all) {
		text := all[endpoint]
		r, ok := readVersion(text)
		if !ok {
			v.add("versions", Warning, "look at that endpoint: is it etcd?", "%s says that its release is %q", endpoint, text)
			continue
		}
		releases = append(releases, r.String())
		before := len(v.Findings)
		for _, d := range defects {
			if !d.has(r) {
				continue
			}
			level := d.level
			if d.onlyWithUsers && !users {
				level = Note
			}
			v.add("versions", level, fmt.Sprintf("upgrade it to %s or later", d.next(r)), "%s runs etcd %s: %s", endpoint, r, d.what)
		}
		switch {
		case r.major != 3 || r.minor < lowestMinor:
			v.add("versions", Problem, "upgrade it", "%s runs etcd %s: releases before 3.%d are not tested", endpoint, r, lowestMinor)
		case r.minor > highestMinor:
			v.add("versions", Note, "", "%s runs etcd %s: later than what this release of syncnode was tested with (3.%d)", endpoint, r, highestMinor)
		case len(v.Findings) == before:
			v.add("versions", OK, "", "%s runs etcd %s", endpoint, r)
		}
	}
	for _, r := range releases {
		if r != releases[0] {
			v.add("versions", Note, "", "members run different releases (%s): finish the upgrade", strings.Join(releases, ", "))
			return
		}
	}
}
