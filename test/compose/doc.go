// Package compose holds the test that docker-compose.yml does what it says, where Docker runs.
package compose
