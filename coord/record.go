package coord

// A Record is what a log says about an attempt: a fact for the judge, never a permission.
type Record struct {
	Run     string
	Attempt string // empty in records that predate attempts
	// Device is the device of the attempt, Author the device whose chain holds the record.
	Device, Author string
	// Resolver means that the author decided as a person or a probe, not as the one who ran it.
	Resolver bool
	Epoch    Epoch
	State    State // Open for a pending record
	Cause    string
	Exit     int
}
