/*
Copyright The agentrun-fleet Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package tally

import (
	"maps"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// A window is a row of buckets of equal length, oldest first. The last one holds the
// time at which the row was last looked at; its place in time is kept once for all
// rows, in the ledger's windowTime.
const (
	shortBucket      = 5 * time.Minute
	bucketsOfAnHour  = 12
	bucketsOfHistory = fleetv1alpha1.HistoryHours
)

// windows are the rows of one member, by reason.
type windows struct {
	// at is the time of the last buckets.
	at   time.Time
	rows map[string]fleetv1alpha1.FailureWindow
}

// windowsAt returns the ledger's windows as they are at a time: what is older than
// the rows are long has left them, and what was said to be later happened now.
func windowsAt(ledger fleetv1alpha1.FailureLedger, now time.Time) *windows {
	w := &windows{at: now.UTC(), rows: map[string]fleetv1alpha1.FailureWindow{}}
	var past time.Time
	if ledger.WindowTime != nil {
		past = ledger.WindowTime.UTC()
	}
	for _, row := range ledger.Windows {
		row.FiveMinutes = moved(row.FiveMinutes, bucketsOfAnHour, bucketsBetween(past, w.at, shortBucket))
		row.Hours = moved(row.Hours, bucketsOfHistory, bucketsBetween(past, w.at, time.Hour))
		w.put(row)
	}
	return w
}

// put keeps a row that holds something.
func (w *windows) put(row fleetv1alpha1.FailureWindow) {
	if row.FiveMinutes != nil || row.Hours != nil {
		w.rows[row.Reason] = row
	}
}

// keep drops the rows of other reasons.
func (w *windows) keep(reason func(string) bool) {
	maps.DeleteFunc(w.rows, func(key string, _ fleetv1alpha1.FailureWindow) bool { return !reason(key) })
}

// add counts one failure at a time, which is in the last bucket when it is in the
// future. A failure that is older than the windows are long is in none.
func (w *windows) add(reason string, at time.Time) {
	row := w.rows[reason]
	row.Reason = reason
	row.FiveMinutes = increased(row.FiveMinutes, bucketsOfAnHour, bucketsBetween(at, w.at, shortBucket))
	row.Hours = increased(row.Hours, bucketsOfHistory, bucketsBetween(at, w.at, time.Hour))
	w.put(row)
}

// of returns the failures of a reason in the last hour and the last day.
func (w *windows) of(reason string) (hour, day int64) {
	return sumOf(w.rows[reason].FiveMinutes), sumOf(w.rows[reason].Hours)
}

// history returns the failures of each hour, whatever their reason, and when the last
// hour began; nothing when there were none.
func (w *windows) history() (counts []int64, at *metav1.Time) {
	for _, row := range w.rows {
		counts = addRows(counts, row.Hours)
	}
	if counts == nil {
		return nil, nil
	}
	hour := metav1.NewTime(w.at.Truncate(time.Hour))
	return counts, &hour
}

// store puts the windows into the ledger.
func (w *windows) store(ledger *fleetv1alpha1.FailureLedger) {
	ledger.Windows, ledger.WindowTime = nil, nil
	if len(w.rows) == 0 {
		return
	}
	for _, reason := range slices.Sorted(maps.Keys(w.rows)) {
		ledger.Windows = append(ledger.Windows, w.rows[reason])
	}
	at := metav1.NewTime(w.at.Truncate(shortBucket))
	ledger.WindowTime = &at
}

// NextBucket is how long it is from now until time alone changes windows.
func NextBucket(now time.Time) time.Duration {
	return now.UTC().Truncate(shortBucket).Add(shortBucket).Sub(now)
}

// bucketsBetween is how many buckets of a length there are from one time to another;
// less than none when that is the earlier one.
func bucketsBetween(from, to time.Time, length time.Duration) int {
	from, to = from.UTC().Truncate(length), to.UTC().Truncate(length)
	return int(to.Sub(from) / length)
}

// moved returns the row n buckets later, in its length, or nil when nothing is left in
// it. Where a clock went back, so that n is negative, what would be in the future is in
// the last bucket. A number below zero, which only an editor can have put there, is none.
func moved(row []int32, length, n int) (out []int32) {
	for i, count := range row {
		j := min(length-len(row)+i-n, length-1)
		if j < 0 || count <= 0 {
			continue
		}
		if out == nil {
			out = make([]int32, length)
		}
		out[j] += count
	}
	return out
}

// increased returns the row with one more in the bucket that is n before the last.
func increased(row []int32, length, n int) []int32 {
	if n >= length {
		return row
	}
	out := make([]int32, length)
	copy(out, row)
	if i := length - 1 - max(0, n); out[i] < math.MaxInt32 {
		out[i]++
	}
	return out
}

func sumOf(row []int32) (sum int64) {
	for _, count := range row {
		sum += int64(count)
	}
	return sum
}

// addRows adds an hourly row to sums, which are nil until there is something to add.
func addRows[T int32 | int64](sums []int64, row []T) []int64 {
	if row == nil {
		return sums
	}
	if sums == nil {
		sums = make([]int64, bucketsOfHistory)
	}
	for i, count := range row {
		sums[i] += int64(count)
	}
	return sums
}
