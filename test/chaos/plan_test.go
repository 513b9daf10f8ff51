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

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const (
	members       = 4
	runsPerMember = 8
)

// kind is a kind of fault.
type kind string

const (
	pause             kind = "pause"
	slow              kind = "slow link"
	reset             kind = "reset"
	refuse            kind = "refuse connections"
	rotateCredentials kind = "rotate credentials"
	badKubeconfig     kind = "bad kubeconfig"
	deleteSecret      kind = "delete Secret"
	killServer        kind = "kill API server"
	killManager       kind = "kill manager"
)

// longest is for how long a fault of a member lasts at most.
var longest = map[kind]time.Duration{
	pause:             8 * time.Second,
	slow:              6 * time.Second,
	reset:             0,
	refuse:            6 * time.Second,
	rotateCredentials: 0,
	badKubeconfig:     4 * time.Second,
	deleteSecret:      4 * time.Second,
	killServer:        3 * time.Second,
}

// fault is one disturbance. Faults of one target do not overlap.
type fault struct {
	target    string // a member, or managerTarget
	kind      kind
	at, lasts time.Duration
}

const managerTarget = "manager"

// life is what happens to one run between its creation and its removal. A run that is
// made anew under its name begins another life.
type life struct {
	member, name string
	number       int
	ending       string // in endings
	// created is when the run and its pod are; reported is when the pod comes to its
	// ending; recovers is when the pod of a run that has failed runs after all.
	// removed is when the run is deleted. A time of 0 never comes.
	created, reported, recovers, removed time.Duration
	// leavesPod keeps the pod when the run is deleted.
	leavesPod bool
	// ownerless marks the pod as the run's by its label alone.
	ownerless bool
}

// token stands in what kubelet says of the life's pod, and of no other's.
func (l *life) token() string { return fmt.Sprintf("[%s/%s/%d]", l.member, l.name, l.number) }

func (l *life) podName() string { return fmt.Sprintf("%s-%d", l.name, l.number) }

// plan is all that happens.
type plan struct {
	seed     uint64
	duration time.Duration
	members  []string
	faults   []fault
	lives    []*life
}

// planner makes choices, all from one source.
type planner struct {
	*rand.Rand
	duration time.Duration
	deck     []kind
}

func newPlan(seed uint64, duration time.Duration) plan {
	p := &planner{Rand: rand.New(rand.NewPCG(seed, 0)), duration: duration}
	result := plan{seed: seed, duration: duration}
	for i := range members {
		name := fmt.Sprintf("member-%d", i+1)
		result.members = append(result.members, name)
		result.faults = append(result.faults, p.faultsOf(name)...)
		for j := range runsPerMember {
			result.lives = append(result.lives, p.livesOf(name, fmt.Sprintf("run-%d", j+1))...)
		}
	}
	result.faults = append(result.faults, p.crashes()...)
	return result
}

func (p *planner) faultsOf(member string) []fault {
	var faults []fault
	for at := p.between(time.Second, 5*time.Second); at < p.duration; {
		f := fault{target: member, kind: p.draw(), at: at}
		f.lasts = p.between(longest[f.kind]/4, longest[f.kind])
		faults = append(faults, f)
		at += f.lasts + p.between(time.Second, 3*time.Second)
	}
	return faults
}

// draw deals the kinds from a shuffled deck, so that each comes up soon.
func (p *planner) draw() kind {
	if len(p.deck) == 0 {
		for k := range longest {
			p.deck = append(p.deck, k)
		}
		slices.Sort(p.deck) // a map has no order, and the seed is to give one
		p.Shuffle(len(p.deck), func(i, j int) { p.deck[i], p.deck[j] = p.deck[j], p.deck[i] })
	}
	k := p.deck[0]
	p.deck = p.deck[1:]
	return k
}

// crashes are those of the manager.
func (p *planner) crashes() []fault {
	var faults []fault
	for at := p.between(8*time.Second, 14*time.Second); at < p.duration; {
		faults = append(faults, fault{target: managerTarget, kind: killManager, at: at, lasts: p.between(0, 3*time.Second)})
		at += p.between(10*time.Second, 18*time.Second)
	}
	return faults
}

// livesOf are the lives of one name, the last of which may stay.
func (p *planner) livesOf(member, name string) []*life {
	var lives []*life
	last := p.between(p.duration/2, p.duration)
	for at := p.between(0, 3*time.Second); ; {
		l := p.life(member, name, len(lives)+1, at)
		lives = append(lives, l)
		if l.removed >= last {
			l.ownerless = p.coin()
			l.removed = 0
			return lives
		}
		l.leavesPod = p.coin()
		at = l.removed
		if p.coin() {
			at += p.between(0, 2*time.Second)
		}
	}
}

func (p *planner) life(member, name string, number int, at time.Duration) *life {
	l := &life{member: member, name: name, number: number, created: at}
	names := endingNames()
	l.ending = names[p.IntN(len(names))]
	l.reported = at + p.between(0, 4*time.Second)
	if p.coin() {
		l.recovers = l.reported + p.between(time.Second, 4*time.Second)
	}
	l.removed = at + p.between(time.Second, 10*time.Second)
	return l
}

// between is a duration of whole milliseconds in [from, to].
func (p *planner) between(from, to time.Duration) time.Duration {
	span := (to - from).Milliseconds()
	return from + time.Duration(p.Int64N(span+1))*time.Millisecond
}

func (p *planner) coin() bool { return p.IntN(2) == 0 }

func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CHAOS_SEED=%d CHAOS_DURATION=%s: %d lives of %d runs in %d members, and these faults:\n",
		p.seed, p.duration, len(p.lives), members*runsPerMember, members)
	inOrder := slices.SortedStableFunc(slices.Values(p.faults), func(a, b fault) int { return int(a.at - b.at) })
	for _, f := range inOrder {
		fmt.Fprintf(&b, "%8s  %-8s  %-18s  for %s\n", f.at, f.target, f.kind, f.lasts)
	}
	return b.String()
}

// of are the faults of one target, in order.
func (p plan) of(target string) []fault {
	return slices.DeleteFunc(slices.Clone(p.faults), func(f fault) bool { return f.target != target })
}
