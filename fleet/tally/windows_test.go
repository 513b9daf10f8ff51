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
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fleetv1alpha1 "github.com/konveyor/agentrun-fleet/api/fleet/v1alpha1"
)

// clock is a time of the second of January.
func clock(hour, minute, second int) time.Time {
	return time.Date(2026, 1, 2, hour, minute, second, 0, time.UTC)
}

func metaClock(hour, minute int) *metav1.Time {
	t := metav1.NewTime(clock(hour, minute, 0))
	return &t
}

// window is one reason's failures in the buckets of five minutes, and in those of hours,
// so many ago.
func window(five, hours []int) fleetv1alpha1.FailureWindow {
	row := fleetv1alpha1.FailureWindow{Reason: "E"}
	if five != nil {
		row.FiveMinutes = buckets(12, five...)
	}
	if hours != nil {
		row.Hours = buckets(24, hours...)
	}
	return row
}

func TestWindowsMoveWithTime(t *testing.T) {
	stored := fleetv1alpha1.FailureLedger{
		WindowTime: metaClock(3, 55),
		Windows:    []fleetv1alpha1.FailureWindow{window([]int{0, 0, 1, 11}, []int{0, 0, 0, 1, 23})},
	}
	cases := map[string]struct {
		now     time.Time
		want    fleetv1alpha1.FailureLedger
		history []int
	}{
		"in the same five minutes nothing moves": {
			now:     clock(3, 59, 59),
			want:    stored,
			history: []int{0, 0, 0, 1, 23},
		},
		"at the edge of five minutes and of the hour the oldest leave, and the others move": {
			now: clock(4, 0, 0),
			want: fleetv1alpha1.FailureLedger{
				WindowTime: metaClock(4, 0),
				Windows:    []fleetv1alpha1.FailureWindow{window([]int{1, 1, 2}, []int{1, 1, 1, 2})},
			},
			history: []int{1, 1, 1, 2},
		},
		"in another zone it is the same": {
			now: clock(4, 0, 0).In(time.FixedZone("half past", 5*3600+1800)),
			want: fleetv1alpha1.FailureLedger{
				WindowTime: metaClock(4, 0),
				Windows:    []fleetv1alpha1.FailureWindow{window([]int{1, 1, 2}, []int{1, 1, 1, 2})},
			},
			history: []int{1, 1, 1, 2},
		},
		"after an hour the day is left": {
			now: clock(4, 56, 0),
			want: fleetv1alpha1.FailureLedger{
				WindowTime: metaClock(4, 55),
				Windows:    []fleetv1alpha1.FailureWindow{window(nil, []int{1, 1, 1, 2})},
			},
			history: []int{1, 1, 1, 2},
		},
		"after a day nothing is left": {now: clock(3, 55, 0).AddDate(0, 0, 1)},
		"after years nothing is left": {now: clock(3, 55, 0).AddDate(900, 0, 0)},
		"when the clock went back, what is in the future now happened now": {
			now: clock(3, 51, 0),
			want: fleetv1alpha1.FailureLedger{
				WindowTime: metaClock(3, 50),
				Windows:    []fleetv1alpha1.FailureWindow{window([]int{0, 0, 0, 10}, []int{0, 0, 0, 1, 23})},
			},
			history: []int{0, 0, 0, 1, 23},
		},
		"when the clock went back for years, all happened now": {
			now: clock(3, 51, 0).AddDate(-900, 0, 0),
			want: fleetv1alpha1.FailureLedger{
				WindowTime: &metav1.Time{Time: clock(3, 50, 0).AddDate(-900, 0, 0)},
				Windows:    []fleetv1alpha1.FailureWindow{window([]int{0, 0, 0, 0}, []int{0, 0, 0, 0, 0})},
			},
			history: []int{0, 0, 0, 0, 0},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := windowsAt(stored, tc.now)
			var got fleetv1alpha1.FailureLedger
			w.store(&got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("stored windows (-want +got):\n%s", diff)
			}
			history, at := w.history()
			var want []int64
			var wantAt *metav1.Time
			if tc.history != nil {
				want = addRows(nil, buckets(24, tc.history...))
				wantAt = &metav1.Time{Time: tc.now.UTC().Truncate(time.Hour)}
			}
			if diff := cmp.Diff(want, history); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantAt, at); diff != "" {
				t.Errorf("history's time (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWindowsAdd(t *testing.T) {
	now := clock(3, 4, 5)
	cases := map[string]struct {
		at   time.Time
		want []fleetv1alpha1.FailureWindow
	}{
		"now":                  {now, []fleetv1alpha1.FailureWindow{window([]int{0}, []int{0})}},
		"in the future is now": {now.AddDate(50, 0, 0), []fleetv1alpha1.FailureWindow{window([]int{0}, []int{0})}},
		"at the beginning of the last five minutes": {clock(3, 0, 0), []fleetv1alpha1.FailureWindow{window([]int{0}, []int{0})}},
		"just before":                       {clock(2, 59, 59), []fleetv1alpha1.FailureWindow{window([]int{1}, []int{1})}},
		"at the beginning of the last hour": {clock(2, 5, 0), []fleetv1alpha1.FailureWindow{window([]int{11}, []int{1})}},
		"just before it":                    {clock(2, 4, 59), []fleetv1alpha1.FailureWindow{window(nil, []int{1})}},
		"at the beginning of the last day":  {clock(-20, 0, 0), []fleetv1alpha1.FailureWindow{window(nil, []int{23})}},
		"older than a day is in no window":  {clock(-21, 59, 59), nil},
		"centuries ago is in no window":     {now.AddDate(-900, 0, 0), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := windowsAt(fleetv1alpha1.FailureLedger{}, now)
			w.add("E", tc.at)
			var got fleetv1alpha1.FailureLedger
			w.store(&got)
			if diff := cmp.Diff(tc.want, got.Windows); diff != "" {
				t.Errorf("windows (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWindowsSurviveAnEditor(t *testing.T) {
	cases := map[string]struct {
		row                 fleetv1alpha1.FailureWindow
		at                  *metav1.Time
		wantHour, wantDay   int64
		wantFive, wantHours []int32
	}{
		"short rows are what happened last": {
			row:      fleetv1alpha1.FailureWindow{FiveMinutes: []int32{2, 3}, Hours: []int32{7}},
			at:       metaClock(2, 59),
			wantHour: 6, wantDay: 8,
			wantFive:  []int32{0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 1},
			wantHours: append(make([]int32, 22), 7, 1),
		},
		"of rows that are too long the last are taken": {
			row:      fleetv1alpha1.FailureWindow{FiveMinutes: longRow(14), Hours: longRow(30)},
			at:       metaClock(3, 0),
			wantHour: sumOf(longRow(14)[2:]) + 1, wantDay: sumOf(longRow(30)[6:]) + 1,
			wantFive:  plusOne(longRow(14)[2:]),
			wantHours: plusOne(longRow(30)[6:]),
		},
		"numbers below zero are none": {
			row:      fleetv1alpha1.FailureWindow{FiveMinutes: []int32{-5, 1}, Hours: []int32{math.MinInt32, 2}},
			at:       metaClock(3, 0),
			wantHour: 2, wantDay: 3,
			wantFive:  append(make([]int32, 11), 2),
			wantHours: append(make([]int32, 23), 3),
		},
		"rows without their time are of long ago": {
			row:      fleetv1alpha1.FailureWindow{FiveMinutes: []int32{5}, Hours: []int32{5}},
			wantHour: 1, wantDay: 1,
			wantFive:  append(make([]int32, 11), 1),
			wantHours: append(make([]int32, 23), 1),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.row.Reason = "E"
			w := windowsAt(fleetv1alpha1.FailureLedger{Windows: []fleetv1alpha1.FailureWindow{tc.row}, WindowTime: tc.at}, clock(3, 4, 5))
			w.add("E", clock(3, 4, 0))
			if hour, day := w.of("E"); hour != tc.wantHour || day != tc.wantDay {
				t.Errorf("%d in the last hour and %d in the last day, want %d and %d", hour, day, tc.wantHour, tc.wantDay)
			}
			if diff := cmp.Diff(tc.wantFive, w.rows["E"].FiveMinutes); diff != "" {
				t.Errorf("five minutes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantHours, w.rows["E"].Hours); diff != "" {
				t.Errorf("hours (-want +got):\n%s", diff)
			}
		})
	}
}

// longRow is 1, 2, 3, ..., n.
func longRow(n int) []int32 {
	var row []int32
	for range n {
		row = append(row, int32(len(row)+1))
	}
	return row
}

func plusOne(row []int32) []int32 {
	row[len(row)-1]++
	return row
}

func TestObserveDropsWindowsOfReasonsThatAreNot(t *testing.T) {
	status := recordedOf(failed("e", "E", 1), failed("f", "F", 1))
	status.Failures = status.Failures[:1] // somebody took F away
	got := recordOne(status, failed("g", "E", 2))
	if len(got.Ledger.Windows) != 1 || sumOf(got.Ledger.Windows[0].Hours) != 2 {
		t.Errorf("windows %v, want one with two failures", got.Ledger.Windows)
	}
}

func recordOne(status clusterStatus, run Run) clusterStatus {
	return Observe(status, seen(Observation{MayCount: always}, status, run))
}

func TestNextBucket(t *testing.T) {
	cases := map[string]struct {
		now  time.Time
		want time.Duration
	}{
		"from within five minutes it is what is left of them": {clock(3, 4, 5), 55 * time.Second},
		"from an edge it is all of the next":                  {clock(3, 5, 0), 5 * time.Minute},
		"in a zone that is a quarter off it is the same":      {clock(3, 4, 5).In(time.FixedZone("odd", 15*60+7)), 55 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := NextBucket(tc.now); got != tc.want {
				t.Errorf("NextBucket(%v) = %v, want %v", tc.now, got, tc.want)
			}
		})
	}
}
