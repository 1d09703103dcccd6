package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/syncnode/syncnode/internal/durable"
	"github.com/syncnode/syncnode/internal/ident"
)

const (
	clustersName = "clusters.json"
	clustersLock = "clusters.lock"
)

// A MismatchError says that the ledger behind an endpoint is another one than before. The caller refuses to run, until a
// person chooses another data directory or adopts the new ledger.
type MismatchError struct {
	Namespace, Endpoint string
	Known, Found        string // generations
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("the ledger of namespace %s behind %s is another one: generation %s was seen there before, now it is %s", e.Namespace, e.Endpoint, e.Known, e.Found)
}

// Clusters is what a data directory has seen of clusters.
type Clusters struct {
	fs  durable.FS
	dir string
}

// OpenClusters returns the register of a data directory, which must be there.
func OpenClusters(dataDir string) *Clusters { return &Clusters{fs: durable.OS{}, dir: dataDir} }

// register is the content of the file.
type register struct {
	V    int    `json:"v"`
	Seen []seen `json:"seen"` // ordered by namespace, endpoint
}

type seen struct {
	Namespace  string `json:"namespace"`
	Endpoint   string `json:"endpoint"`
	Generation string `json:"generation"`
	// Earlier are the generations in whose place this one was adopted, oldest first.
	Earlier []string `json:"earlier,omitempty"`
}

// Bind notes that these endpoints lead to that generation of the namespace. If one of them was seen with another, nothing
// is noted and the answer is a *MismatchError. Endpoints that are all new are another cluster, with a folder of its own.
func (c *Clusters) Bind(namespace string, endpoints []string, generation string) error {
	return c.change(namespace, endpoints, generation, false)
}

// Adopt is Bind by decision of a person: what was seen before is replaced, and kept as earlier.
func (c *Clusters) Adopt(namespace string, endpoints []string, generation string) error {
	return c.change(namespace, endpoints, generation, true)
}

func (c *Clusters) change(namespace string, endpoints []string, generation string, adopt bool) error {
	if err := errors.Join(ident.Check("namespace", namespace), ident.Check("generation", generation)); err != nil {
		return err
	}
	have, err := c.read()
	if err != nil {
		return err
	}
	if changed, err := have.bind(namespace, endpoints, generation, adopt); err != nil {
		return err
	} else if !changed {
		return c.settle()
	}
	lock, err := c.fs.Lock(filepath.Join(c.dir, clustersLock))
	if err != nil {
		return fmt.Errorf("lock clusters: %w", err)
	}
	defer lock.Close()
	if have, err = c.read(); err != nil { // once more: another process may have written
		return err
	}
	if changed, err := have.bind(namespace, endpoints, generation, adopt); err != nil {
		return err
	} else if !changed {
		return c.settle()
	}
	text, err := json.MarshalIndent(have, "", "  ")
	if err != nil {
		return fmt.Errorf("write clusters: %w", err)
	}
	if err := durable.WriteTo(c.fs, filepath.Join(c.dir, clustersName), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write clusters: %w", err)
	}
	return nil
}

// settle makes durable what was found: whoever wrote it may have been killed before it had synced.
func (c *Clusters) settle() error {
	if err := c.fs.SyncDir(c.dir); err != nil {
		return fmt.Errorf("sync clusters: %w", err)
	}
	return nil
}

// bind changes r and reports whether it did.
func (r *register) bind(namespace string, endpoints []string, generation string, adopt bool) (bool, error) {
	changed := false
	next := slices.Clone(r.Seen)
	for _, e := range endpoints {
		e = endpointName(e)
		i, found := slices.BinarySearchFunc(next, seen{Namespace: namespace, Endpoint: e}, compareSeen)
		switch {
		case !found:
			next = slices.Insert(next, i, seen{Namespace: namespace, Endpoint: e, Generation: generation})
		case next[i].Generation == generation:
			continue
		case !adopt:
			return false, &MismatchError{Namespace: namespace, Endpoint: e, Known: next[i].Generation, Found: generation}
		default:
			was := slices.Clone(next[i].Earlier)
			if !slices.Contains(was, next[i].Generation) {
				was = append(was, next[i].Generation)
			}
			next[i].Generation, next[i].Earlier = generation, slices.DeleteFunc(was, func(g string) bool { return g == generation })
		}
		changed = true
	}
	r.Seen = next
	return changed, nil
}

func compareSeen(a, b seen) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Endpoint, b.Endpoint)
}

// endpointName makes the usual spellings of one endpoint equal.
func endpointName(e string) string {
	e = strings.TrimRight(strings.TrimSpace(e), "/")
	if strings.HasPrefix(e, "unix") {
		return e // a path
	}
	return strings.ToLower(e)
}

// Dir is the folder of one namespace and generation in the data directory.
func (c *Clusters) Dir(namespace, generation string) string {
	return filepath.Join(c.dir, namespace+"-"+generation)
}

// Known lists the generations of a namespace that were seen, ordered.
func (c *Clusters) Known(namespace string) ([]string, error) {
	r, err := c.read()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range r.Seen {
		if s.Namespace == namespace {
			out = append(out, s.Generation)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Behind lists the generations of a namespace that were seen behind any of the endpoints, ordered.
func (c *Clusters) Behind(namespace string, endpoints []string) ([]string, error) {
	r, err := c.read()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range endpoints {
		if i, found := slices.BinarySearchFunc(r.Seen, seen{Namespace: namespace, Endpoint: endpointName(e)}, compareSeen); found {
			out = append(out, r.Seen[i].Generation)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Earlier lists the generations of a namespace in whose place the given one was adopted, ordered.
func (c *Clusters) Earlier(namespace, generation string) ([]string, error) {
	r, err := c.read()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range r.Seen {
		if s.Namespace == namespace && s.Generation == generation {
			out = append(out, s.Earlier...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (c *Clusters) read() (register, error) {
	name := filepath.Join(c.dir, clustersName)
	text, err := durable.ReadFrom(c.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return register{V: formatVersion}, nil
	}
	if err != nil {
		return register{}, fmt.Errorf("read clusters: %w", err)
	}
	var r register
	if err := json.Unmarshal(text, &r); err != nil {
		return register{}, fmt.Errorf("%w: %s: %w", ErrCorrupt, name, err)
	}
	if r.V != formatVersion {
		return register{}, fmt.Errorf("%w: %s has version %d, this release knows %d", ErrCorrupt, name, r.V, formatVersion)
	}
	slices.SortFunc(r.Seen, compareSeen)
	return r, nil
}
