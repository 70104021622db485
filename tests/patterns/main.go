// Says for each line of standard input, a pattern and values in hexadecimal with commas between them, which of the values the
// pattern matches as a whole: 1 or 0 for each, or why the pattern is refused. Bytes are characters of Latin-1.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
)

func latin1(field string) string {
	bytes, err := hex.DecodeString(field)
	if err != nil {
		log.Fatal(err)
	}
	characters := make([]rune, len(bytes))
	for at, value := range bytes {
		characters[at] = rune(value)
	}
	return string(characters)
}

func answer(line string) string {
	fields := strings.Split(line, ",")
	pattern, err := regexp.Compile(latin1(fields[0]))
	if err != nil {
		return "refused: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	// If it matches the whole, the longest of its matches that begin first is that.
	pattern.Longest()
	matches := make([]byte, len(fields)-1)
	for at, field := range fields[1:] {
		value := latin1(field)
		found := pattern.FindStringIndex(value)
		matches[at] = '0'
		if found != nil && found[0] == 0 && found[1] == len(value) {
			matches[at] = '1'
		}
	}
	return string(matches)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		fmt.Println(answer(lines.Text()))
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}
