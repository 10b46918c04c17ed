// What nginx asks at a gateway: whose key a request has, and what an answer says of tokens. For njs 0.7 and newer.
// Each request has a copy of these variables of its own.
import fs from 'fs';
import crypto from 'crypto';

const MOST_KEY = 512;
const MOST_USAGE = 4096; // characters of one usage object
const MARK = /"usage"\s*:\s*\{/g;

let looked = null; // {id, until, rate, verdict}, once for each request
let rest = ''; // of the chunk before, where a usage may begin
let prompt = '', completion = '';

// The key as clients of OpenAI or of Anthropic send it; '' for none, and for what no key of ours is.
function token(r) {
    const all = r.rawHeadersIn.filter(h => h[0].toLowerCase() === 'authorization');
    if (all.length > 1) {
        return '';
    }
    if (all.length === 1) {
        const found = /^bearer +([\x21-\x7e]+)$/i.exec(all[0][1].trim());
        return found && found[1].length <= MOST_KEY ? found[1] : '';
    }
    const other = r.headersIn['x-api-key'] || '';
    return /^[\x21-\x7e]+$/.test(other) && other.length <= MOST_KEY ? other : '';
}

function look(r) {
    if (looked) {
        return looked;
    }
    looked = { id: '', until: 0, rate: '', verdict: 'missing' };
    const given = token(r);
    if (!given) {
        return looked;
    }
    looked.verdict = 'unknown';
    const name = crypto.createHash('sha256').update(given).digest('hex');
    let kept;
    try {
        kept = JSON.parse(fs.readFileSync(`${r.variables.key_folder}/${name}`));
    } catch (e) {
        return looked;
    }
    looked.id = String(kept.id);
    looked.rate = kept.rate ? String(kept.rate) : '';
    if (kept.until && Date.now() / 1000 >= kept.until) {
        looked.verdict = 'expired';
    } else {
        looked.verdict = kept.allowed ? 'ok' : 'elsewhere';
    }
    return looked;
}

const id = r => look(r).id;
const rate = r => (look(r).verdict === 'ok' ? look(r).rate : '');
const verdict = r => look(r).verdict;

// Object text from its brace on, '' where it does not end yet. Braces within strings do not count.
function whole(text) {
    let depth = 0, quoted = false;
    for (let i = 0; i < text.length && i < MOST_USAGE; i++) {
        const c = text[i];
        if (quoted) {
            if (c === '\\') {
                i++;
            } else if (c === '"') {
                quoted = false;
            }
        } else if (c === '"') {
            quoted = true;
        } else if (c === '{') {
            depth++;
        } else if (c === '}' && --depth === 0) {
            return text.slice(0, i + 1);
        }
    }
    return '';
}

function take(text) {
    let said;
    try {
        said = JSON.parse(text);
    } catch (e) {
        return;
    }
    const p = said.prompt_tokens === undefined ? said.input_tokens : said.prompt_tokens;
    const c = said.completion_tokens === undefined ? said.output_tokens : said.completion_tokens;
    prompt = Number.isInteger(p) && p >= 0 ? String(p) : prompt;
    completion = Number.isInteger(c) && c >= 0 ? String(c) : completion;
}

// A body filter: passes every chunk on as it is, and keeps what the last usage in it says. Within a JSON text quotes are
// escaped, so that nothing a client or model wrote looks like one.
function watch(r, data, flags) {
    r.sendBuffer(data, flags);
    const text = rest + data.toString();
    rest = text.slice(-16);
    let found, from = -1;
    MARK.lastIndex = 0;
    while ((found = MARK.exec(text)) !== null) {
        const object = whole(text.slice(found.index + found[0].length - 1));
        if (object) {
            take(object);
        } else {
            from = found.index;
        }
    }
    if (from >= 0 && text.length - from < MOST_USAGE) {
        rest = text.slice(from);
    }
}

export default { id, rate, verdict, watch, prompt: () => prompt, completion: () => completion };
