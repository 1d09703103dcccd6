// Package prometheus holds the alert rules of syncnode, and the test that reads them as a Prometheus does. It is a module
// of its own, so that nobody gets a Prometheus with syncnode.
package prometheus

import (
	"bufio"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const file = "syncnode.rules.yml"

func rules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 10 {
		t.Fatalf("%d rules: the file was lost", len(all))
	}
	return all
}

// exported are the labels of each series that a node shows, by name.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	f, err := os.Open("../../node/metrics/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string][]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		words := strings.Fields(s.Text())
		name, kind, with := words[0], words[1], words[2:]
		if kind == "histogram" {
			all[name+"_count"], all[name+"_sum"], all[name+"_bucket"] = with, with, append(with, "le")
			continue
		}
		all[name] = with
	}
	return all
}

func TestARuleUsesOnlyWhatANodeShows(t *testing.T) {
	known := exported(t)
	for _, r := range rules(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		used := 0
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			v, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			used++
			has, ok := known[v.Name]
			if !ok {
				t.Errorf("%s asks for %s, which no node shows", r.Alert, v.Name)
			}
			for _, m := range v.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(has, m.Name) {
					t.Errorf("%s asks for the label %s of %s, which has %v", r.Alert, m.Name, v.Name, has)
				}
			}
			return nil
		})
		if used == 0 {
			t.Errorf("%s asks for nothing", r.Alert)
		}
	}
}

var (
	heading = regexp.MustCompile(`(?m)^## (.+)$`)
	unusual = regexp.MustCompile(`[^a-z0-9 -]`)
)

func TestEveryRuleSaysWhatIsWrongAndWhereToRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(string(page), -1) {
		sections[strings.ReplaceAll(unusual.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	for _, r := range rules(t) {
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s says too little", r.Alert)
		}
		if s := r.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		name, ok := strings.CutPrefix(r.Annotations["runbook_url"], "docs/operations.md#")
		if !ok || !sections[name] {
			t.Errorf("%s leads to %q, which is no section", r.Alert, r.Annotations["runbook_url"])
		}
		if !strings.Contains(string(page), "`"+r.Alert+"`") {
			t.Errorf("%s is not in docs/operations.md", r.Alert)
		}
	}
}
