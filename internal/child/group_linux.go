package child

import (
	"bytes"
	"os"
	"strconv"
)

// onlyZombies says whether all that is left of a group has ended and waits for a parent that is slow to take
// its state, or never will. It is false if that cannot be told.
func onlyZombies(pgid int) bool {
	proc, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return false
	}
	found := false
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it is gone
		}
		state, group := parseStat(stat)
		if group != pgid {
			continue
		}
		if state != 'Z' && state != 'X' {
			return false
		}
		found = true
	}
	return found
}

// parseStat takes the state and the process group from "pid (name) state ppid pgrp …"; the name may hold
// anything.
func parseStat(stat []byte) (state byte, pgid int) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, 0
	}
	fields := bytes.Fields(stat[i+1:])
	if len(fields) < 3 {
		return 0, 0
	}
	pgid, _ = strconv.Atoi(string(fields[2]))
	return fields[0][0], pgid
}
