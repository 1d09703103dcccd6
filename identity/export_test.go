package identity

import "github.com/syncnode/syncnode/internal/durable"

// ClustersIn is OpenClusters on another file system.
func ClustersIn(fsys durable.FS, dataDir string) *Clusters { return &Clusters{fs: fsys, dir: dataDir} }
