package metrics

import (
	"strconv"
	"strings"
	"time"
)

// other is the route of requests that are for none.
const other = "other"

// Routes names the patterns that the API serves, so that each is shown before its first request.
func (m *Metrics) Routes(patterns []string) {
	for _, p := range append(patterns, "") {
		method, route := split(p)
		for _, class := range []string{"2xx", "4xx", "5xx"} {
			m.requests.WithLabelValues(route, method, class)
		}
	}
}

// Request counts one that was answered. pattern is that of its route, with the method; empty: there is none, and then
// what the client sent is not made a label. took is 0 for a stream. It is for api.Config.Answered.
func (m *Metrics) Request(pattern string, status int, took time.Duration) {
	method, route := split(pattern)
	m.requests.WithLabelValues(route, method, strconv.Itoa(status/100)+"xx").Inc()
	if took > 0 {
		m.took.WithLabelValues(route, method).Observe(took.Seconds())
	}
}

func split(pattern string) (method, route string) {
	method, route, ok := strings.Cut(pattern, " ")
	if !ok {
		return "", other
	}
	return method, route
}
