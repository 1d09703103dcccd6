package journal

import "github.com/syncnode/syncnode/internal/durable"

// What a journal needs of a file system. OS is that of the operating system.
type (
	FS   = durable.FS
	File = durable.File
	OS   = durable.OS
)
