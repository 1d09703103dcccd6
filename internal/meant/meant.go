// Package meant guesses which word a misspelt one was to be.
//
// # Guarantees
//
// A guess is at most one letter off in short words and two in long ones; in short words two other letters are
// another word. No guess is better than a wrong one.
//
// # Failure
//
// There is none: "" means that nothing is near.
//
// # Concurrency
//
// All functions are pure.
package meant

// longest bounds the words that are compared.
const longest = 64

// Word is the one of words that got is a slip of the hand away from, or "".
func Word(got string, words []string) string {
	best, least := "", 3
	if len(got) > longest {
		return best
	}
	for _, w := range words {
		most := 2
		if len(w) < 8 {
			most = 1
		}
		if d := distance(got, w); d <= most && d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is how many letters to add, leave out or change make a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}
