/*
 * One key, the gateways that ask for it, the store, the upstream: claim, renew, complete, release, expire, pause.
 *
 * Each script of src/store/lua is one atomic step here. Time is not counted: a lease may pass at any moment at which its
 * leader does not tend it, because it is paused or dead, or never learned that it leads. A push is heard or lost. There
 * are no loops that change nothing, so "it always ends" is the absence of states in which something waits and nothing
 * can happen.
 *
 * Bounds (-D): GATEWAYS, REQUESTS of each gateway, PAUSES, CRASHES and LOSSES (of a claim or of its
 * reply) in all.
 * Switches (-D), each of which takes away one thing that the design relies on, and must make the check fail:
 *   NO_FENCE_CHECK                                         the upstream executes whatever comes
 *   NO_TOKEN_IN_RENEW, NO_TOKEN_IN_COMPLETE, NO_TOKEN_IN_RELEASE
 *   NO_POLL                                                a lost push is never made up for
 *   RESULT_PER_KEY                                         results are kept under the key, without the flight
 *   NO_OWN_CLAIM                                           a claim that is asked again is not known again
 *   NO_BAR                                                 a claim that was given up may still take the key
 */

#ifndef GATEWAYS
#define GATEWAYS 2
#endif
#ifndef REQUESTS
#define REQUESTS 2
#endif
#ifndef PAUSES
#define PAUSES 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif

#define FLIGHTS (GATEWAYS * REQUESTS + 1)
#define NOBODY 0
#define GIVEN_UP 255

#ifdef RESULT_PER_KEY
#define SLOT(flight) 0
#else
#define SLOT(flight) flight
#endif

#ifdef NO_TOKEN_IN_RENEW
#define RENEW_TOKEN true
#else
#define RENEW_TOKEN (key.flight == mine && key.fence == fence)
#endif
#ifdef NO_TOKEN_IN_COMPLETE
#define COMPLETE_TOKEN true
#else
#define COMPLETE_TOKEN (key.flight == mine && key.fence == fence)
#endif
#ifdef NO_TOKEN_IN_RELEASE
#define RELEASE_TOKEN true
#else
#define RELEASE_TOKEN (key.flight == mine && key.fence == fence)
#endif

#ifdef NO_OWN_CLAIM
#define OWN false
#else
#define OWN (key.flight == mine)
#endif
#ifdef NO_BAR
#define BARRED false
#else
#define BARRED (result[SLOT(mine)] == GIVEN_UP)
#endif

mtype = { FREE, UP, KEPT, UNKNOWN };
mtype = { LEADER, FOLLOWER, STORED, REFUSED, ENDED };

typedef Record {
  mtype state = FREE;
  byte flight;
  byte fence
};

/* The store. */
Record key;
bool waiting[GATEWAYS];
byte result[FLIGHTS];
byte lastFence;

/* The push that each process has heard last: of which flight, and whose result it was. */
byte pushOf[GATEWAYS];
byte pushed[GATEWAYS];

/* The processes. */
bool paused[GATEWAYS];
bool crashed[GATEWAYS];
/* The flight whose lease a process renews. */
byte tends[GATEWAYS];
byte pauses, crashes, losses, over;

/* What is checked; nothing decides by it but a leader's own clock, which is never later than the store's (lapsed). */
byte holder;
bool lapsed[FLIGHTS];

/* The upstream. */
byte newest, executing;

#define AWAKE (!paused[me])
#define tended(f) (tends[(f - 1) / REQUESTS] == f && !paused[(f - 1) / REQUESTS] && !crashed[(f - 1) / REQUESTS])

/* Tells the waiting processes: the result first, then a push to each, heard or lost. */
inline tell(payload) {
  i = 0;
  do
  :: i < GATEWAYS ->
     if
     :: waiting[i] ->
        waiting[i] = false;
        result[SLOT(mine)] = payload;
        if
        :: pushOf[i] = mine; pushed[i] = payload
        :: skip
        fi
     :: else
     fi;
     i++
  :: else -> break
  od;
  i = 0
}

inline settled(next) {
  if
  :: holder == mine -> holder = NOBODY
  :: else
  fi;
  key.state = next;
  if
  :: next == FREE -> key.flight = NOBODY; key.fence = 0
  :: else
  fi
}

/* claim.lua */
inline claim() {
  if
  :: key.state == UP && OWN -> reply = LEADER; fence = key.fence
  :: key.state == UP && !OWN -> reply = FOLLOWER; followed = key.flight; waiting[me] = true
  :: key.state == KEPT -> reply = STORED
  :: key.state == UNKNOWN -> reply = REFUSED
  :: key.state == FREE && BARRED -> reply = ENDED
  :: key.state == FREE && !BARRED ->
     assert(holder == NOBODY);
     holder = mine;
     lapsed[mine] = false;
     lastFence++;
     fence = lastFence;
     key.state = UP;
     key.flight = mine;
     key.fence = fence;
     reply = LEADER
  fi
}

/* renew.lua. What is held is believed, so it must be true. */
inline renew() {
  if
  :: key.state == UP && RENEW_TOKEN -> assert(holder == mine)
  :: else -> lost = true
  fi
}

/* complete.lua: a response that is kept or only told, or an outcome that nobody knows. */
inline complete() {
  if
  :: key.state == UP && COMPLETE_TOKEN ->
     tell(mine);
     if
     :: true -> settled(KEPT)
     :: true -> settled(FREE)
     :: true -> settled(UNKNOWN)
     fi
  :: else
  fi
}

/* release.lua of a leader that knows its fence. */
inline release() {
  if
  :: key.state == UP && RELEASE_TOKEN -> tell(mine); settled(FREE)
  :: else
  fi
}

/* release.lua of one that never learned whether it leads: by flight alone, and the flight is barred. */
inline giveUp() {
  if
  :: key.state == UP && key.flight == mine -> tell(GIVEN_UP); settled(FREE)
  :: else
  fi;
  if
  :: result[SLOT(mine)] == NOBODY -> result[SLOT(mine)] = GIVEN_UP
  :: else
  fi
}

/* The upstream reads a request. Between the leader's look at its lease and this any pause is possible. */
inline send() {
#ifndef NO_FENCE_CHECK
  if
  :: fence < newest -> goto settle
  :: else
  fi;
#endif
#if PAUSES + CRASHES > 0
  assert(fence > newest);
#endif
  newest = fence;
  executing++;
#if PAUSES + CRASHES == 0
  assert(executing == 1);
#endif
}

/* Takes a result as that of the flight that is followed. */
inline take(payload) {
  assert(payload == followed || payload == GIVEN_UP);
  followed = NOBODY
}

proctype Gateway(byte me) {
  byte mine, fence, followed, asked, i;
  bool lost;
  mtype reply;

  do
  :: atomic {
       AWAKE && asked < REQUESTS ->
       asked++;
       mine = me * REQUESTS + asked;
       fence = 0;
       lost = false
     };

ask:
     atomic {
       AWAKE;
       if
       /* The answer comes. */
       :: true -> claim()
       /* It is lost; the same question is asked again, or given up. */
       :: losses < LOSSES -> losses++; claim(); goto again
       /* The question itself is late: it is given up before it arrives. */
       :: losses < LOSSES -> losses++; goto late
       fi;
       if
       :: reply == LEADER -> tends[me] = mine; goto lead
       :: reply == FOLLOWER -> assert(followed != mine); goto follow
       :: else -> goto done
       fi
     };

again:
     atomic {
       AWAKE;
       reply = 0;
       followed = NOBODY;
       if
       :: true -> goto ask
       :: true -> giveUp(); goto done
       fi
     };

late:
     atomic { AWAKE; giveUp() };
     atomic {
       claim();
       assert(reply != LEADER);
       followed = NOBODY;
       goto done
     };

lead:
     /* Nothing is sent under a lease that has passed by the leader's own clock. */
     atomic {
       AWAKE;
       if
       :: lapsed[mine] -> goto settle
       :: else
       fi
     };
     atomic { AWAKE; send() };
     if
     :: atomic { AWAKE; executing-- }
     :: atomic { AWAKE && crashes < CRASHES -> crashes++; crashed[me] = true; goto gone }
     fi;

settle:
     if
     :: atomic { AWAKE; renew(); if :: lost -> tends[me] = NOBODY; goto done :: else fi }
     :: AWAKE
     fi;
     atomic {
       AWAKE;
       if
       :: true -> complete()
       :: true -> release()
       fi;
       tends[me] = NOBODY;
       goto done
     };

follow:
     if
     /* The push. */
     :: atomic { AWAKE && pushOf[me] == followed -> take(pushed[me]) }
#ifndef NO_POLL
     /* look.lua, asked now and then. An answer that tells of nothing new is left out: it changes nothing. */
     :: atomic { AWAKE && result[SLOT(followed)] != NOBODY -> take(result[SLOT(followed)]) }
     :: atomic {
          AWAKE && result[SLOT(followed)] == NOBODY && !(key.state == UP && key.flight == followed) ->
          /* What the key keeps of it, or that nobody knows. */
          followed = NOBODY
        }
#endif
     fi;

done:
     atomic {
       reply = 0;
       followed = NOBODY;
       fence = 0;
       lost = false
     }
  :: atomic { asked == REQUESTS -> break }
  od;

gone:
  over++
}

/* Leases pass, what is kept is forgotten, what is unknown is held no longer. */
proctype Clock() {
end:
  do
  :: atomic {
       key.state == UP && !tended(key.flight) ->
       lapsed[key.flight] = true;
       if
       :: holder == key.flight -> holder = NOBODY
       :: else
       fi;
       if
       :: key.state = UNKNOWN
       :: key.state = FREE; key.flight = NOBODY; key.fence = 0
       fi;
       d_step { byte w = 0; do :: w < GATEWAYS -> waiting[w] = false; w++ :: else -> break od; w = 0 }
     }
  :: atomic { key.state == KEPT || key.state == UNKNOWN -> key.state = FREE; key.flight = NOBODY; key.fence = 0 }
  od
}

/* Any process stands still at any moment, and goes on at any later one. */
proctype Pause(byte who) {
end:
  do
  :: atomic { pauses < PAUSES && !paused[who] -> pauses++; paused[who] = true }
  :: paused[who] -> paused[who] = false
  od
}

/* When all is over, no key is held for nobody: only a process that died leaves its lease behind. */
proctype End() {
  atomic {
    over == GATEWAYS ->
    assert(key.state != UP || crashed[(key.flight - 1) / REQUESTS])
  }
}

init {
  atomic {
    byte g = 0;
    do
    :: g < GATEWAYS -> run Gateway(g); run Pause(g); g++
    :: else -> break
    od;
    run Clock();
    run End()
  }
}
