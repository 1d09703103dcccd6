package api

import "time"

// Limits.
const (
	MaxBody        = 1 << 20
	MaxConnections = 1024
	MaxRequests    = 256 // at one time; watchers count for themselves
	MaxWatchers    = 64
	// RequestTime bounds a request that is no stream.
	RequestTime = 60 * time.Second
	// BodyTime bounds the arrival of a body.
	BodyTime = 10 * time.Second
	// WriteTime bounds each write to a stream.
	WriteTime = 10 * time.Second
)

// limits are what clients may take of a server.
type limits struct {
	Connections          int // of a listener
	Requests, Watchers   int // at one time
	Header               int // bytes
	Request, Body, Write time.Duration
	HeaderTime, Idle     time.Duration // until a header is whole, and until the next request of a connection
}

// usual are the limits of a server.
var usual = limits{Connections: MaxConnections, Requests: MaxRequests, Watchers: MaxWatchers, Header: 16 << 10,
	Request: RequestTime, Body: BodyTime, Write: WriteTime, HeaderTime: 5 * time.Second, Idle: 2 * time.Minute}
