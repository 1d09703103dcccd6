//go:build !linux

package cluster

import (
	"net"
	"syscall"
)

func childAttr() *syscall.SysProcAttr { return nil }

func stopped(int) (bool, error) { return true, nil }

func owner(net.Conn, []int) (int, bool) { return 0, false }
