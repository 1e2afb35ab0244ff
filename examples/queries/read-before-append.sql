-- Is the position the length that was read before the append? `seq` is the order in which the phases ran; the length that
-- read_length saw is the only right position. (kvstep's own faults read at the right moment and then use another number, so it is
-- the number that gives them away; in another engine's trace the order may.)
SELECT s.run, s.step, r.seq AS read_at, min(a.seq) AS append_at, r.cache_length AS length_read, s.position,
       CASE WHEN r.seq > min(a.seq) THEN 'read after the append'
            WHEN s.position IS NOT r.cache_length THEN 'another position than the length read'
            ELSE 'ok' END AS verdict
FROM step AS s
JOIN event AS r ON r.run = s.run AND r.step = s.step AND r.phase = 'read_length'
JOIN event AS a ON a.run = s.run AND a.step = s.step AND a.phase = 'append'
GROUP BY s.run, s.step, r.seq
ORDER BY s.run, s.step;
