package dispatch

// The codes that a run ends with where the effect's own code does not tell. They are the exit codes of `syncnode exec`.
const (
	// ExitOK: committed now or earlier, or this very run is running elsewhere and IfHeld is skip.
	ExitOK = 0
	// ExitBusy: not run, because the agent is busy with another run, the wait was in vain, or IfHeld or IfDone
	// is fail. Also the embedded data directory's "busy".
	ExitBusy = 110
	// ExitLost: run, and stopped and joined because the lease could not be trusted any more.
	ExitLost = 111
	// ExitInDoubt: an attempt may have run and nobody saw how it ended.
	ExitInDoubt = 112
	// ExitGate: not run, because the agent is paused or the recovery gate is set.
	ExitGate = 113
	// ExitUnsettled: run and ended by itself; the outcome is in the journal and not in the ledger yet.
	ExitUnsettled = 114
	// ExitFailed: failed earlier, and not run again.
	ExitFailed = 115
	// ExitTimeout: run, and stopped and joined at its time limit.
	ExitTimeout = 124
	// ExitNotRun: not run, because something failed before the start.
	ExitNotRun = 125
	// ExitNotExecutable and ExitNotFound: not run, as a shell would say.
	ExitNotExecutable = 126
	ExitNotFound      = 127
	// ExitSignal and n: the effect was ended by signal n; or nothing was run and signal n ended the wait.
	ExitSignal = 128
)
